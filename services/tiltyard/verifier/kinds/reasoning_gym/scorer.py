"""Runs inside the sandbox: draws the item again and has its own scorer judge `answer.txt`.

`tiltyard.domains.procedural` stands in front of this file. `item.json`: dataset, level, seed, digest, key. The last
line printed begins with the key: a score, or `other` when reasoning-gym draws another question than the task's.
"""

import json
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tiltyard.domains.procedural import digest, draw


def main() -> None:
    """Score the answer; whatever the scorer raises is a score of 0."""
    with open("item.json", encoding="utf-8") as file:
        item = json.load(file)
    with open("answer.txt", encoding="utf-8") as file:
        answer = file.read()
    dataset, entry = draw(item["dataset"], item["level"], item["seed"])
    said = "other"
    if digest(entry["question"]) == item["digest"]:
        try:
            said = repr(float(dataset.score_answer(answer, entry)))
        except Exception:  # scorers raise on what they can't read, and that's no right answer
            said = "0.0"
    sys.stdout.write("\n" + item["key"] + " " + said + "\n")


if __name__ == "__main__":
    main()
