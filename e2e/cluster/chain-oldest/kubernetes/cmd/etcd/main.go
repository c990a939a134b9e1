// Command etcd is the upstream etcd server, built from the same module as the rest of the chain.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(os.Args)
}
