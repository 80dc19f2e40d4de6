/** Loading, registration and dispatch of modules. */
export {};
