"""The webhook and the podgrouper on the real cluster."""
