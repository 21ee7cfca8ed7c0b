"""How far a run is: as a line of the log, and as a display at a terminal."""
