"""Where the API server is and how this process authenticates: kubeconfig, pod, exec plugin, TLS."""
