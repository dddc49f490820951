"""Between the terminal and the engines: the engine process, the transport of events, the folded state, traces."""
