"""The commands, one module each. A module has `COMMANDS`: name -> what to run; heavy imports happen when it runs."""
