"""What operators ask, answered once: typed results that remoting, HTTP and the console encode."""
