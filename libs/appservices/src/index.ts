/** Registrations, namespaces, outgoing transactions. */
export {};
