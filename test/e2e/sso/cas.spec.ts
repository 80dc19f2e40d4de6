import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { challengeOf } from '../accounts/support.js';
import { linkOf, type Shown } from './browser.js';
import { base, startWorld, trusted, type World } from './world.js';

/** A CAS server that logs in whoever the test says. */
async function startCas() {
  let tickets = 0;
  const services = new Map<string, string>();
  const server = createServer((request, response) => {
    const url = new URL(request.url ?? '/', 'http://localhost');
    cas.requests.push(url);
    const service = url.searchParams.get('service') ?? '';
    if (url.pathname === '/cas/login') {
      const ticket = `ST-${++tickets}`;
      services.set(ticket, service);
      const target = new URL(service);
      target.searchParams.set('ticket', ticket);
      response.writeHead(302, { location: target.href });
      response.end();
      return;
    }
    const ticket = url.searchParams.get('ticket') ?? '';
    const good = services.get(ticket) === service;
    services.delete(ticket);
    const failure = `<cas:authenticationFailure code="INVALID_TICKET">Ticket &lt;b&gt;${ticket}&lt;/b&gt;</cas:authenticationFailure>`;
    const inside = good ? `<cas:authenticationSuccess>${cas.success}</cas:authenticationSuccess>` : failure;
    response.writeHead(200, { 'content-type': 'text/xml' });
    response.end(
      cas.answer ?? `<cas:serviceResponse xmlns:cas="http://www.yale.edu/tp/cas">${inside}</cas:serviceResponse>`,
    );
  });
  const cas = {
    url: '',
    requests: [] as URL[],
    /** What a good ticket stands for. */
    success: '<cas:user>anna</cas:user>',
    /** In place of the ordinary answer. */
    answer: undefined as string | undefined,
    async stop() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  cas.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/cas/`;
  return cas;
}

const failed = (shown: Shown, code: string, status = 400): void => {
  expect({ status: shown.status, html: shown.html }).toMatchObject({ status });
  expect(shown.html).toContain(`<code>${code}</code>`);
};

describe.each(['sqlite', 'postgres'] as const)('sign-on through CAS (%s)', (kind) => {
  let cas: Awaited<ReturnType<typeof startCas>>;
  let world: World;

  beforeAll(async () => {
    cas = await startCas();
    world = await startWorld(kind, {
      cas_config: {
        server_url: cas.url,
        idp_name: 'The old way',
        displayname_attribute: 'fullName',
        required_attributes: { memberOf: ['staff', 'admins'], active: 'true', mail: null },
        allow_numeric_ids: true,
        numeric_ids_prefix: 'c',
        protocol_version: 3,
      },
    });
  });
  beforeEach(() => {
    cas.answer = undefined;
    cas.requests.length = 0;
  });
  afterAll(async () => {
    await world?.stop();
    await cas?.stop();
  });

  const person = (
    user: string,
    attributes = '<cas:memberOf>staff</cas:memberOf><cas:active>true</cas:active>',
  ): void => {
    cas.success = `<cas:user>${user}</cas:user><cas:attributes>${attributes}<cas:mail>x@y</cas:mail><cas:fullName>Full ${user}</cas:fullName></cas:attributes>`;
  };

  it('tells clients of it', async () => {
    const { body } = await world.homeserver.request<{ flows: object[] }>('GET', '/login');
    expect(body.flows).toContainEqual({ type: 'm.login.cas' });
    expect(body.flows).toContainEqual({
      type: 'm.login.sso',
      identity_providers: [{ id: 'cas', name: 'The old way' }],
    });
  });

  it('logs people in, from either address, and finds them again', async () => {
    person('Anna');
    const anna = await world.logIn(await world.begin(world.browser()));
    expect(anna.userId).toBe('@anna:rookery.test');
    expect((await anna.request('GET', `/profile/${anna.userId}`)).body).toMatchObject({ displayname: 'Full Anna' });
    const old = await world.browser().follow(`${base}/_matrix/client/r0/login/cas/redirect?redirectUrl=${trusted}`);
    expect((await world.logIn(old)).userId).toBe('@anna:rookery.test');
    expect(cas.requests.map(({ pathname }) => pathname)).toContain('/cas/p3/proxyValidate');
    // Registries of CAS servers hold this address.
    const services = cas.requests.map(({ searchParams }) => searchParams.get('service') ?? '');
    for (const service of services) expect(service.split('?')[0]).toBe(`${base}/_matrix/client/r0/login/cas/ticket`);
    person('4711');
    expect((await world.logIn(await world.begin(world.browser()))).userId).toBe('@c4711:rookery.test');
  });

  it('finds accounts of the same name that were there', async () => {
    const hans = await world.homeserver.registerUser('hans');
    person('Hans');
    expect((await world.logIn(await world.begin(world.browser()))).userId).toBe(hans.userId);
  });

  it('confirms interactive auth', async () => {
    person('berta');
    const browser = world.browser();
    const berta = await world.logIn(await world.begin(browser));
    const challenge = await challengeOf(berta.request('POST', '/delete_devices', { devices: [] }));
    const page = await browser.go(
      `${base}/_matrix/client/v3/auth/m.login.sso/fallback/web?session=${challenge.session}`,
    );
    const done = await browser.follow(linkOf(page, /Confirm/));
    expect(done.html).toContain('Your identity is confirmed');
    expect(
      await berta.request('POST', '/delete_devices', { devices: [], auth: { session: challenge.session } }),
    ).toMatchObject({ status: 200 });
  });

  it('asks for attributes', async () => {
    person(
      'carl',
      '<cas:memberOf>guests</cas:memberOf><cas:memberOf>students</cas:memberOf><cas:active>true</cas:active>',
    );
    failed(await world.begin(world.browser()), 'unauthorised', 403);
    person('carl', '<cas:memberOf>staff</cas:memberOf><cas:active>false</cas:active>');
    failed(await world.begin(world.browser()), 'unauthorised', 403);
    person(
      'carl',
      '<cas:memberOf>guests</cas:memberOf><cas:memberOf>admins</cas:memberOf><cas:active>true</cas:active>',
    );
    expect((await world.logIn(await world.begin(world.browser()))).userId).toBe('@carl:rookery.test');
  });

  it('takes a ticket from the browser that began, once', async () => {
    person('anna');
    const browser = world.browser();
    const start = await browser.go(`${base}/_matrix/client/v3/login/sso/redirect?redirectUrl=${trusted}`);
    const back = (await browser.go(start.location!)).location!;
    // Somebody else's ticket logs nobody in.
    failed(await world.browser().go(back), 'missing_session');
    const other = new URL(back);
    other.searchParams.set('state', 'x');
    failed(await browser.go(other), 'mismatching_session');
    const cookie = browser.cookies(back)['cas_session'] ?? '';
    const copy = world.browser();
    copy.setCookie(back, `cas_session=${cookie}; Path=/_matrix/client; Secure`);
    await world.logIn(await browser.go(back));
    failed(await copy.go(back), 'invalid_session');
  });

  it.each([
    ['no answer of the protocol', '<html></html>', 'invalid_response', 502],
    ['no XML', '{"user": "anna"}', 'invalid_response', 502],
    ['nobody', '<serviceResponse><authenticationSuccess/></serviceResponse>', 'invalid_response', 502],
    [
      'entities',
      '<!DOCTYPE a [<!ENTITY u SYSTEM "file:///etc/passwd">]><serviceResponse><authenticationSuccess><user>&u;</user></authenticationSuccess></serviceResponse>',
      'invalid_response',
      502,
    ],
    [
      'a failure with markup',
      '<serviceResponse><authenticationFailure code="BAD&lt;i&gt;">&lt;script&gt;x&lt;/script&gt;</authenticationFailure></serviceResponse>',
      'BAD&lt;i&gt;',
      400,
    ],
    [
      'a name of nothing',
      '<serviceResponse><authenticationSuccess><user> </user></authenticationSuccess></serviceResponse>',
      'invalid_response',
      502,
    ],
  ])('refuses %s', async (_what, answer, code, status) => {
    cas.answer = answer;
    const shown = await world.begin(world.browser());
    failed(shown, code, status);
    expect(shown.html).not.toContain('<script>x');
  });
});
