"""What a run says about itself: events, metrics, traces, and the state that screens draw."""
