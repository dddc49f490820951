"""Between the terminal and the engines: the engine process, the transport of events, replays, sample traces.

The engine runs in a process of its own and owns the model. Events come through a pipe as lines of JSON, the same
lines that a trace holds; a thread collects them and the screen takes them in at 20 Hz. So drawing never slows
decoding, a crash of one does not take the other, and esc always stops a run. Datastores are built and probed there
too: dense builds need the model. A client says what it can do (``capabilities``); a replay is a client whose events
come from a file when its clock says.
"""
