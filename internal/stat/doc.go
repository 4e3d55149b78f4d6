// Package stat has what parts of the process count of themselves, in the form of the admin API: numbers and times that
// may be unknown, and the structs of ports, clients, replicas, queues and pickers with their JSON. The part that counts
// returns such a struct, and the admin API shows it, without a copy field by field in between.
//
// It is not for what has to be derived or joined first; that is in controlplane/view and controlplane/admin. The keys
// are described in docs/admin-api.md, and are stable.
package stat
