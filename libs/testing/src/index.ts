/** Test homeservers, databases, clocks and networks for tests. */
export {};
