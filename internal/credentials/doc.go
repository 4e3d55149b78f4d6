// Package credentials keeps the certificates, keys and authorities of all listeners and clients of the process up to
// date with their files, so that a rotation needs no restart and ends no connection.
//
// A [Store] reads a file when it is first asked for it, and then twice a second ([Store.Run]). Connections take what is
// current at their handshake; those that are open are not affected.
//
// A file that is written while it is read, a key that does not belong to its certificate yet, a bundle that ends within
// a certificate, one that has expired already: none of these replaces usable content. New content counts once two
// readings in a row find it, so that a file of which a part is missing is not taken for a shorter one. While a file
// cannot be used, its previous content is, and [Store.State] has the error.
//
// gRPC's certificate providers (credentials/tls/certprovider/pemfile) do the same for files that can be read, but have
// no state: what they fail to read is a line in gRPC's log. They also read without a bound on size and time.
package credentials
