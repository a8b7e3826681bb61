package main

import (
	"slices"

	"varve/tests/kafka"
)

// clients lists every client in the order of the table.
func clients() []Client {
	return slices.Concat(
		[]Client{
			kcatClient(),
			quickStartClient(),
			toolsClient(),
			javaClient("java-4.4", "tests/kafka/kafka.pom.xml", "kafka", kafka.Jars(), installJava4),
			javaClient("java-3.9", "tests/compat/suite/java/clients3.pom.xml", "clients3", clients3Jars(), installJava3),
		},
		frameworks(),
		pythonClients(),
		nodeClients(),
		goClients(),
		strangers(),
	)
}
