"""Answers to operators: typed results that remoting, HTTP and the console encode."""
