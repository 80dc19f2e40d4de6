import { createHmac } from 'node:crypto';
import { createTestHomeserver, type TestHomeserver } from '@rookery/testing';
import { validatedFetch } from '../../support/openapi.js';

const transports = '/_matrix/client/unstable/org.matrix.msc4143/rtc/transports';

describe('what clients need for calls', () => {
  let homeserver: TestHomeserver | undefined;
  afterEach(async () => {
    await homeserver?.stop();
    homeserver = undefined;
  });

  it('gives credentials that the TURN servers can check', async () => {
    homeserver = await createTestHomeserver({
      fetch: validatedFetch,
      settings: {
        turn_uris: ['turn:turn.example.org?transport=udp', 'turns:turn.example.org'],
        turn_shared_secret: 'between us',
        turn_user_lifetime: '2h',
        turn_allow_guests: false,
        allow_guest_access: true,
        experimental_features: { msc4143_enabled: true },
        matrix_rtc: { transports: [{ type: 'livekit', livekit_service_url: 'https://rtc.example.org' }] },
      },
    });
    const alice = await homeserver.registerUser('alice');
    const { status, body } = await alice.request<Record<string, string>>('GET', '/voip/turnServer');
    expect(status).toBe(200);
    const { username = '', password } = body;
    const [expiry = '', ...userId] = username.split(':');
    expect(userId.join(':')).toBe(alice.userId);
    const inSeconds = Number(expiry) - Date.now() / 1000;
    expect(inSeconds).toBeGreaterThan(7_000);
    expect(inSeconds).toBeLessThanOrEqual(7_201);
    expect(password).toBe(createHmac('sha1', 'between us').update(username).digest('base64'));
    expect(body).toMatchObject({ ttl: 7_200, uris: ['turn:turn.example.org?transport=udp', 'turns:turn.example.org'] });
    const guest = await homeserver.request('POST', '/register?kind=guest', {});
    const answer = await homeserver.request('GET', '/voip/turnServer', undefined, String(guest.body['access_token']));
    expect(answer).toMatchObject({ status: 403, body: { errcode: 'M_GUEST_ACCESS_FORBIDDEN' } });
    expect((await alice.request('GET', transports)).body).toEqual({
      rtc_transports: [{ type: 'livekit', livekit_service_url: 'https://rtc.example.org' }],
    });
    expect((await homeserver.request('GET', '/voip/turnServer')).status).toBe(401);
  });

  it('has nothing to give where nothing is set up, and says in /versions what there is', async () => {
    homeserver = await createTestHomeserver({ settings: { max_event_delay_duration: '1h' } });
    const alice = await homeserver.registerUser('alice');
    expect(await alice.request('GET', '/voip/turnServer')).toMatchObject({ status: 200, body: {} });
    expect(await alice.request('GET', transports)).toMatchObject({ status: 404, body: { errcode: 'M_UNRECOGNIZED' } });
    const versions = await homeserver.request<{ unstable_features: Record<string, boolean> }>(
      'GET',
      '/_matrix/client/versions',
    );
    expect(versions.body.unstable_features).toMatchObject({
      'org.matrix.simplified_msc3575': true,
      'org.matrix.msc4140': true,
      'org.matrix.msc4143': false,
    });
    const { body } = await alice.request<{ capabilities: object }>('GET', '/capabilities');
    expect(body.capabilities).toMatchObject({
      'org.matrix.msc4140.delayed_events': { max_delay_ms: 3_600_000, max_scheduled: 100 },
    });
  });

  it('knows nothing of sliding sync where it is switched off', async () => {
    homeserver = await createTestHomeserver({ settings: { experimental_features: { msc3575_enabled: false } } });
    const alice = await homeserver.registerUser('alice');
    const path = '/_matrix/client/unstable/org.matrix.simplified_msc3575/sync';
    expect(await alice.request('POST', path, {})).toMatchObject({ status: 404, body: { errcode: 'M_UNRECOGNIZED' } });
  });
});
