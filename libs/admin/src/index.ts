/** Admin API, server notices, reports. */
export {};
