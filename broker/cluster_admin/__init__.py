"""What commands and the console ask of NameServers and brokers, wherever a cluster runs."""
