import { createTestHomeserver, type TestHomeserver } from '@rookery/testing';
import { type RegisteredClient, registerClient } from '../../support/sdk-client.js';

describe('media with the clients’ own library', () => {
  let homeserver: TestHomeserver;
  let alice: RegisteredClient;
  let bob: RegisteredClient;
  beforeAll(async () => {
    homeserver = await createTestHomeserver();
    alice = await registerClient(homeserver.baseUrl, 'alice');
    bob = await registerClient(homeserver.baseUrl, 'bob');
  });
  afterAll(() => homeserver?.stop());

  it('a file goes from one to another', async () => {
    const { content_uri: uri } = await alice.client.uploadContent(Buffer.from('a letter'), {
      name: 'letter.txt',
      type: 'text/plain',
    });
    const address = bob.client.mxcUrlToHttp(uri, undefined, undefined, undefined, false, true, true);
    expect(address).toContain('/_matrix/client/v1/media/download/');
    const answer = await fetch(address ?? '', { headers: { authorization: `Bearer ${bob.accessToken}` } });
    expect(await answer.text()).toBe('a letter');
    expect(answer.headers.get('content-disposition')).toBe('inline; filename=letter.txt');
    expect(await bob.client.getMediaConfig(true)).toEqual({ 'm.upload.size': 50 * 1024 ** 2 });
  });
});
