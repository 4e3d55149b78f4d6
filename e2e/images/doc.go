// Package images runs the steps of the Dockerfile without a container engine, and the programs of both images in the
// root file systems that these steps make.
//
// What stands for a base image: this machine, with its Go and its C compiler, for the stages that build; unpacked
// packages of Debian (tools/rootfs.sh) for distroless/static; the same with the C library and the tests' own Envoy for
// Envoy's image. So it is tested that the steps fit together, that each program finds what it needs in its image
// and runs there as the image's user, by the image's command. It is not tested that a registry has the bases, nor what
// else is in them. That Envoy's image has an older C library is tested by the versions that the module asks for.
package images
