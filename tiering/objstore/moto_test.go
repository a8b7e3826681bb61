//go:build moto

package objstore

import (
	"testing"

	"varve/tests/s3server"
)

// TestContractMoto is the second opinion. Built only with -tags moto, because moto
// needs Python; .ci/run installs it.
func TestContractMoto(t *testing.T) {
	srv := s3server.StartKind(t, s3server.Moto)
	srv.Setenv(t)
	t.Run("s3", func(t *testing.T) { contract{store: openForTest(t, srv.URL), listKeys: 1500}.run(t) })
	t.Run("minio", func(t *testing.T) { contract{store: openForTest(t, srv.MinioURL), listKeys: 1500}.run(t) })
}
