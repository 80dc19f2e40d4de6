import { fileURLToPath } from 'node:url';
import { createTestHomeserver, type TestHomeserver } from '@rookery/testing';

let homeserver: TestHomeserver;
beforeAll(async () => {
  const module = fileURLToPath(new URL('../src/index.ts', import.meta.url));
  homeserver = await createTestHomeserver({ settings: { modules: [{ module }] } });
});
afterAll(() => homeserver.stop());

it('shows its record to nobody but administrators', async () => {
  const alice = await homeserver.registerUser('alice');
  const path = `/_synapse/client/threepid-audit/${encodeURIComponent(alice.userId)}`;
  expect(await homeserver.request('GET', path)).toMatchObject({ status: 401, body: { errcode: 'M_MISSING_TOKEN' } });
  expect(await alice.request('GET', path)).toMatchObject({ status: 403, body: { errcode: 'M_FORBIDDEN' } });
});
