package tiering

import (
	"flag"
	"os"
	"testing"

	"varve/tests/s3server"
)

// testsAtOnce: most of the fault matrix waits for stores that do not answer, whatever the number of processors.
const testsAtOnce = "6"

func TestMain(m *testing.M) {
	s3server.TempInMemory()
	flag.Parse()
	if err := flag.Set("test.parallel", testsAtOnce); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
