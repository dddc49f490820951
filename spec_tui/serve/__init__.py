"""The application in a browser, a process for each session: who may connect, what a session gets of this machine, and
when it ends. textual-serve has the terminal that the browser draws."""
