"""POP: received messages are invisible to others for a time, and are acknowledged one by one."""
