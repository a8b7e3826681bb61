//go:build moto

package objstore

import (
	"testing"

	"varve/tests/s3server"
)

// TestContractMoto is the second opinion. Built only with -tags moto, because moto
// needs Python; .ci/run installs it.
func TestContractMoto(t *testing.T) {
	for _, driver := range []string{"s3", "minio"} {
		t.Run(driver, func(t *testing.T) {
			srv := s3server.StartKind(t, s3server.Moto)
			srv.Setenv(t)
			url := srv.URL
			if driver == "minio" {
				url = srv.MinioURL
			}
			contract{store: openForTest(t, url), listKeys: 1500, partBytes: testPartBytes}.run(t)
		})
	}
}
