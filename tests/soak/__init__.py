"""Real brokers, disks and sockets under faults, while clients record all answers.

``python -m tests.soak --minutes N --seed S``. The simulator replaces exactly what this uses: the
WebSocket transport, kernel writes, the file system, HTTP and the processes themselves.
"""
