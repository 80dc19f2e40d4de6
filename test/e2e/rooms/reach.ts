import type { TestHomeserver } from '@rookery/testing';

/**
 * Starts a server of this process and gets hold of one of its services, for what no endpoint offers; of several processes, that of
 * the one that writes.
 * @throws Error when the server has no such service
 */
export async function startAndReach<T>(
  type: abstract new (...args: never[]) => T,
  start: () => Promise<TestHomeserver>,
): Promise<{ homeserver: TestHomeserver; instance: T }> {
  const homeserver = await start();
  return { homeserver, instance: homeserver.server.service(type) };
}
