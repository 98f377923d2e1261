// Package hostfile opens files that will be mapped into memory, so that others
// can still rename and delete them. Within this module only.
package hostfile
