"""The console command `tiltyard`: one module per subcommand, imported when it is called."""
