"""The screens: Textual widgets that draw what the session's state says, and hand what is typed to an engine client."""
