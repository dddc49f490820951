"""What a run says about itself: events, metrics, traces, and the state that screens draw.

``Started, Prefilled, Round..., Finished`` (or ``Failed``), and ``Audited`` after them where the answer was checked.
Screens, traces, metrics and tests read these and nothing else. A trace is the events as lines of JSON, then one line
with the SHA-256 of them; a run that was cut off has none. Lines that are no events of this version, and events that
no fold could rely on, are left out and named; unknown fields are ignored. The fold keeps every column of a run in
storage that its states share, so ``RunState.until(n)`` costs nothing to compute.
"""
