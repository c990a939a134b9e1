"""The kinds of workloads, and what each of them is to the podgrouper: one adapter a kind."""
