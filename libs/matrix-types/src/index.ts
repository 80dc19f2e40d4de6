/** Identifiers, wire types and error codes of the Matrix protocol. */
export {};
