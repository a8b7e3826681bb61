package main

import "slices"

// clients lists every client in the order of the table.
func clients() []Client {
	return slices.Concat(
		[]Client{
			kcatClient(),
			toolsClient(),
			javaClient("java-4.4", "kafka", kafkaJars(), installJava4),
			javaClient("java-3.9", "clients3", clients3Jars(), installJava3),
		},
		pythonClients(),
		nodeClients(),
		goClients(),
		strangers(),
	)
}
