"""Answers to operators, computed once: typed results that remoting, HTTP and the console encode."""
