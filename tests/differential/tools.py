# ruff: noqa: E501
"""Benign programs around awk, sed, grep, jq, tar and files. Name to script, run by bash in a fresh workspace."""

from __future__ import annotations

AWK = {
    "awk sums": "printf 'a 1\\nb 2\\na 3\\n' | awk '{s[$1]+=$2} END {for (k in s) print k, s[k] | \"sort\"}'",
    "awk fields": "echo 'x:y:z' | awk -F: -v OFS=- '{$2=\"Q\"; print; print NF, $NF}'; printf 'ab12cd\\n' | awk '{print substr($0,3,2), length($0), index($0,\"c\"), toupper($0)}'",
    "awk printf": 'awk \'BEGIN {printf "%5.2f|%-6s|%04d|%e|%c\\n", 3.14159, "ab", 7, 12345.678, 65; print 1/3, 2^53, int(-3.7), 10 % 3}\'',
    "awk control": 'awk \'BEGIN {for (i=1;i<=15;i++) {s=""; if (i%3==0) s=s "fizz"; if (i%5==0) s=s "buzz"; print s==""?i:s}}\'',
    "awk regex": "printf 'foo=1\\nbar = 22\\n# c\\n' | awk '/^#/ {next} {gsub(/ /,\"\"); n=split($0,a,\"=\"); print n, a[1], a[2]} match($0,/[0-9]+/) {print RSTART, RLENGTH}'",
    "awk getline and pipes": 'seq 3 > n; awk \'BEGIN {while ((getline x < "n") > 0) t+=x; "echo hi" | getline y; print t, y; print "b\\na" | "sort"; close("sort"); print "end"; system("exit 3")}\'',
    "awk random": 'awk \'BEGIN {srand(42); for (i=0;i<5;i++) printf "%.6f ", rand(); print ""; srand(1); print int(rand()*1000)}\'',
    "awk functions": "awk 'function gcd(a,b) {return b==0?a:gcd(b,a%b)} function rev(s, r,i) {for(i=length(s);i;i--) r=r substr(s,i,1); return r} BEGIN {print gcd(1071,462), rev(\"hello\")}'",
    "awk records": "printf 'n: a\\nv: 1\\n\\nn: b\\nv: 2\\n' | awk -v RS= -F'\\n' '{print NR \": \" $1 \", \" $2}'; printf 'a,b;c' | awk -v RS='[,;]' '{print NR $0}'",
    "awk files": "printf '1 a\\n2 b\\n' > x; printf '2 X\\n1 Y\\n' > y; awk 'NR==FNR {m[$1]=$2; next} {print m[$1], $2, FILENAME, FNR}' x y; awk '{print > (\"o-\" $1)}' x; cat o-1 o-2",
    "gawk asort": 'printf \'c\\na\\nb\\n\' | gawk \'{a[NR]=$0} END {n=asort(a); for(i=1;i<=n;i++) print a[i]; print strftime("%F", 0, 1), gensub(/(.)a/, "<\\\\1>", "g", "banana")}\'',
}
SED = {
    "sed substitute": "printf 'one two\\ntwo two\\n' | sed 's/two/2/'; echo 'two two' | sed 's/two/2/2; s/t/T/'; echo a.b.c | sed 's/\\./-/g'; echo /a/b | sed 's|/|:|g'",
    "sed groups": "echo 'John Smith' | sed -E 's/(\\w+) (\\w+)/\\2, \\1/'; echo abcabc | sed -E 's/(abc)\\1/<\\1>/'; echo hello | sed 's/./\\U&/'; echo aXb | sed 's/x/-/I'",
    "sed addresses": "seq 10 | sed -n '2p;5,7p;$p'; seq 6 | sed '1~2d'; printf 'a\\nSTART\\nb\\nEND\\nc\\n' | sed '/START/,/END/d'; seq 5 | sed '3q'",
    "sed insert and change": "seq 3 | sed -e '2i before' -e '2a after' -e '3c changed'; seq 3 | sed '1!G;h;$!d'; printf 'a\\nb\\n' | sed N | sed 's/a/X/;=' ",
    "sed in place": "echo 'k=1' > c; cp c d; sed -i.bak 's/1/2/' c d; cat c d c.bak; sed -i '$a end' c; cat c; ls",
    "sed hold space": "printf 'h1\\nx\\nh2\\ny\\nz\\n' | sed -n '/^h/{x;s/\\n/,/gp;d};H;${x;s/\\n/,/gp}'; echo 'a,b,c' | sed ':a;s/,/;/;ta'; echo 1234567 | sed ':a;s/\\B[0-9]\\{3\\}\\>/,&/;ta'",
    "grep": "printf 'apple\\nBanana\\ncherry pie\\n' > f; grep -n an f; grep -ic B f; grep -v a f; grep -E '^(a|c)' f; grep -o '[aeiou]' f | sort | uniq -c; grep -w pie f; grep zebra f; echo $?; grep -q app f && echo y",
    "grep context": "seq 20 > n; grep -A1 -B1 '^10$' n; grep -c 1 n; grep -m2 1 n; mkdir d; cp n d/m; grep -rl 19 . | sort; grep -F '1*' n; echo $?; printf 'a\\0b\\n' | grep -c a",
    "grep perl": "echo 'price: 42 USD' | grep -oP '\\d+(?= USD)'; echo foobar | grep -P '(?<!x)bar' ; echo 'key=val' | grep -oP 'key=\\K\\w+'",
    "perl one-liners": "printf '3\\n1\\n2\\n' | perl -e 'print sort {$a <=> $b} <STDIN>'; echo hello | perl -pe 's/(.)/$1$1/g'; perl -e 'print join(\",\", map {$_*$_} 1..5), \"\\n\"; printf \"%.3f\\n\", atan2(1,1)*4'",
}
JQ = {
    "jq paths": 'echo \'{"a":{"b":[1,2,{"c":null}]}}\' | jq -c \'.a.b[2], .a.b[-1].c, (.a.b|length), [paths|map(tostring)|join(".")]\'',
    "jq select and map": 'echo \'[{"n":"x","v":3},{"n":"y","v":1}]\' | jq -c \'map(select(.v>1)), (sort_by(.v)|map(.n)), (map(.v)|add), (map({(.n):.v})|add), max_by(.v)\'',
    "jq strings": 'echo \'"a,b c\\u00fc"\' | jq -c \'split(","), length, ascii_downcase, test("b.c"), @base64, @uri, explode[0:2], utf8bytelength\' ; jq -nr \'[1,"a"]|@csv, @tsv, @json\'',
    "jq reduce": "jq -nc '[range(10)] | reduce .[] as $x (0; . + $x), [limit(3; .[])], (to_entries[2]), ([.[]|select(. % 3 == 0)]), (group_by(. % 2)|map(length))'",
    "jq errors": "echo '{bad' | jq . ; echo $?; echo '{\"a\":1}' | jq '.a.b'; echo $?; echo 'null' | jq -e . ; echo $?; echo '1 2 3' | jq -s add; jq -n '1/3, 1e1000, (now|type)'",
    "jq update": 'x=\'{"a":[1,2],"b":{"c":1}}\'; for f in \'.a[0] |= .+10 | .b.d = "x" | del(.b.c)\' \'[..|numbers]\' \'with_entries(.key|=ascii_upcase)\' tostream; do jq -c "$f" <<< "$x"; done',
}
ARCHIVES = {
    "tar round trip": "mkdir -p t/s; seq 100 > t/n; echo x > t/s/y; ln -s n t/l; chmod 640 t/n; tar --sort=name --mtime=@0 --owner=0 --group=0 -cf a.tar t; tar -tf a.tar; mkdir o; tar -xf a.tar -C o; diff -r t o/t && stat -c '%a %F' o/t/n o/t/l; sha256sum a.tar; rm a.tar",
    "tar selections": "mkdir d; touch d/a.c d/b.o d/c.c; tar -cf x.tar --exclude='*.o' d; tar -tf x.tar | sort; tar -xOf x.tar d/a.c | wc -c; tar -rf x.tar d/b.o; tar -tf x.tar | wc -l; rm x.tar",
    "gzip": "seq 5000 > n; gzip -nk n; stat -c %s n.gz; gzip -t n.gz && echo good; zcat n.gz | cmp - n && echo same; gzip -nc9 n | wc -c; gunzip -c n.gz | tail -n 1; head -c 50 n.gz > bad.gz; gunzip -t bad.gz; echo $?; rm *.gz",
    "tar with gzip": "mkdir p; for i in $(seq 30); do seq $i > p/$i; done; tar -C p -cz . | tar -tz | sort | head -n 3; tar -czf p.tgz p; tar -xzf p.tgz --strip-components=1 --one-top-level=q; ls q | wc -l; rm p.tgz; cmp p/30 q/30",
}
FILES = {
    "links": "echo x > a; ln a b; ln -s a s; ln -s ../nowhere dead; stat -c '%h %F' a s; echo y >> b; cat a s; readlink s dead; readlink -f s; rm a; cat b; cat s; ls -l | grep -v total | awk '{print $1, $2}' | sort; realpath -m dead/.. | sed 's|.*/||'",
    "copy and move": "mkdir -p a/b; seq 5 > a/b/f; touch -d @1000000000 a/b/f; cp -a a c; stat -c '%Y %a' c/b/f; cp -r a d; mv d e; mv e/b/f e/g; find e | sort; cp nothere x; echo $?; mv -n a/b/f e/g; ls a/b; install -m 755 -D c/b/f i/j/k; stat -c %a i/j/k",
    "remove": "mkdir -p x/y/z; touch x/f; rm x; echo $?; rmdir x; echo $?; rm -r x/y; ls -A x; rm -rf x nothere; echo $?; touch ro; chmod 444 ro; rm -f ro; ls -A",
    "truncate and dd": "truncate -s 10M sparse; stat -c '%s' sparse; dd if=/dev/zero of=z bs=1k count=3 status=none; stat -c %s z; printf abc | dd of=z bs=1 seek=5 conv=notrunc status=none; od -An -c -j4 -N5 z; dd if=z bs=1 skip=5 count=3 status=none; echo; truncate -s 2 z; stat -c %s z; rm sparse",
    "times": "touch -d '2020-02-29T12:34:56Z' f; TZ=UTC stat -c '%y %Y' f; touch -r f g; [ f -nt g ] || [ g -nt f ] || echo equal; touch -m -d @5 f; stat -c %Y f; TZ=UTC ls --time-style=+%F -l f | awk '{print $6}'",
    "deep tree": "p=.; for i in $(seq 30); do p=$p/d$i; done; mkdir -p $p; echo end > $p/f; find . -name f -exec cat {} \\;; find . -type d | wc -l; du -a --apparent-size . | wc -l; rm -r d1; ls",
    "many files": "for i in $(seq 300); do echo $i > f$i; done; ls | wc -l; cat f* | sort -n | tail -n 1; ls f1? | wc -l; rm f[0-9]; ls | wc -l; rm f*; ls",
    "locale sort": "printf 'b\\nA\\na\\nB\\n\\303\\244\\n' > f; sort f; LC_ALL=C sort f | od -An -c; ls -1; echo \u00e4\u00f6 | wc -m -c; echo '\u00c4' | tr '[:upper:]' x; printf '%.1s\\n' \u00e9x",
    "dev files": "echo x > /dev/null; head -c 5 /dev/zero | od -An -tx1; head -c 8 /dev/urandom | wc -c; echo y > /dev/stdout; echo z > /dev/stderr; cat /dev/null | wc -c; echo full > /dev/full; echo $?; ls -d /dev/fd /dev/shm; [ -c /dev/null ] && echo c",
    "shared memory and tmp": "echo a > /tmp/x; echo b > /dev/shm/y; cat /tmp/x /dev/shm/y; stat -c %a /tmp /dev/shm; f=$(mktemp); stat -c '%a %s' $f; d=$(mktemp -d); stat -c %a $d; df --output=size -B1 /workspace | tail -n 1; rm -r $f $d /tmp/x /dev/shm/y",
    "identity": "id; whoami; groups; id -u; pwd; echo $HOME $PATH $TERM; hostname; cd; pwd; ls -ld /workspace | cut -c1-10; touch /usr/x 2> /dev/null; echo $?; cat /etc/passwd | tail -n 1; su -c id < /dev/null > /dev/null 2>&1; echo $?",
}
