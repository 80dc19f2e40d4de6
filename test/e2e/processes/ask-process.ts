import type { TestHomeserver, TestUser } from '@rookery/testing';

/** Asks one of a server's processes, the one that writes is the first. @returns the answer, which must be 200 */
export async function askProcess<T>(
  homeserver: TestHomeserver,
  process: number,
  user: TestUser,
  method: string,
  path: string,
  body?: object,
): Promise<T> {
  const [address] = homeserver.servers[process]!.addresses;
  const response = await fetch(`http://127.0.0.1:${address!.port}/_matrix/client/v3${path}`, {
    method,
    headers: { authorization: `Bearer ${user.accessToken}`, 'content-type': 'application/json' },
    ...(body && { body: JSON.stringify(body) }),
  });
  expect({ path, status: response.status }).toEqual({ path, status: 200 });
  return (await response.json()) as T;
}
