"""What survives when the proxy is killed."""
