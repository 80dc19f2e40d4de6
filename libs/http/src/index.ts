/** Fastify set-up, guard, limits, error mapping, outbound client. */
export {};
