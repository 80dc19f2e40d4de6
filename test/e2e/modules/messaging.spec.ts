import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { eventually, type MailSink, startMailSink } from '@rookery/testing';
import { probe, type ProbeServer, startProbe } from './probe-server.js';

/** An HTTP server that tells what it was asked. */
async function echoServer(): Promise<{ url: string; server: Server }> {
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const path = request.url ?? '/';
      if (path === '/slow') return;
      response.statusCode = path.startsWith('/status/') ? Number(path.slice(8)) : 200;
      response.setHeader('content-type', 'application/json');
      if (path === '/large') return void response.end('x'.repeat(5_000));
      const { method, headers } = request;
      const told = { method, path, type: headers['content-type'], mark: headers['x-mark'] };
      response.end(path === '/text' ? 'no JSON' : JSON.stringify({ ...told, body: Buffer.concat(chunks).toString() }));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, server };
}

describe.each(['sqlite', 'postgres'] as const)('messages by the module API (%s)', (kind) => {
  let server: ProbeServer;
  let echo: Awaited<ReturnType<typeof echoServer>>;
  let sink: MailSink;

  beforeAll(async () => {
    echo = await echoServer();
    sink = await startMailSink();
    server = await startProbe(kind, {
      ip_range_whitelist: ['127.0.0.1'],
      email: sink.settings,
    });
    await server.registerUser('ann');
  });
  afterAll(async () => {
    await server?.stop();
    echo.server.closeAllConnections();
    echo.server.close();
    await sink?.stop();
  });
  beforeEach(() => probe.reset());

  const value = async (path: string, ...args: unknown[]): Promise<unknown> => {
    const called = await server.call(path, ...args);
    expect(called).toMatchObject({ status: 200 });
    return called.result;
  };

  it('sends JSON, forms and plain requests', async () => {
    const options = { query: { q: 'a b' }, headers: { 'x-mark': '1' } };
    expect(await value('httpClient.getJson', `${echo.url}/get`, options)).toMatchObject({
      ...{ method: 'GET', path: '/get?q=a+b', mark: '1', body: '' },
    });
    expect(await value('httpClient.postJsonGetJson', `${echo.url}/post`, { a: 1 })).toMatchObject({
      ...{ method: 'POST', type: 'application/json', body: '{"a":1}' },
    });
    expect(await value('httpClient.putJson', `${echo.url}/put`, [1])).toMatchObject({ method: 'PUT', body: '[1]' });
    expect(await value('httpClient.postUrlencodedGetJson', `${echo.url}/form`, { a: 'b c' })).toMatchObject({
      ...{ type: 'application/x-www-form-urlencoded', body: 'a=b+c' },
    });
    const file = await probe.api!.httpClient.getFile(`${echo.url}/text`);
    expect(Buffer.from(file.body).toString()).toBe('no JSON');
    const missing = await probe.api!.httpClient.request('delete', `${echo.url}/status/404`);
    expect(missing).toMatchObject({ status: 404, headers: { 'content-type': 'application/json' } });
  });

  it('fails with 502 whatever is wrong with the other side', async () => {
    const { httpClient } = probe.api!;
    const failure = { status: 502, errcode: 'M_UNKNOWN' };
    await expect(httpClient.getJson(`${echo.url}/status/500`)).rejects.toMatchObject(failure);
    await expect(httpClient.getJson(`${echo.url}/text`)).rejects.toMatchObject(failure);
    await expect(httpClient.getFile(`${echo.url}/status/404`)).rejects.toMatchObject(failure);
    await expect(httpClient.getFile(`${echo.url}/large`, { maxSizeBytes: 4_000 })).rejects.toMatchObject(failure);
    await expect(httpClient.getJson(`${echo.url}/slow`, { timeoutMs: 100 })).rejects.toMatchObject(failure);
    await expect(httpClient.getJson('nonsense')).rejects.toMatchObject(failure);
    await expect(httpClient.getJson('http://127.0.0.2/')).rejects.toMatchObject({
      ...failure,
      message: expect.stringContaining('may not reach') as string,
    });
    await expect(httpClient.request('PATCH', echo.url)).rejects.toThrow(RangeError);
  });

  it('sends a mail with its own words', async () => {
    await value('sendMail', 'bob@example.org', 'News & more', '<b>Hi &amp; bye</b>', 'Hi & bye');
    const { raw: mail } = await sink.next('bob@example.org');
    expect(mail).toContain('To: bob@example.org');
    expect(mail).toContain('Subject: News & more');
    expect(mail).toContain('<b>Hi &amp; bye</b>');
    expect(mail).toContain('Hi & bye');
    expect(await server.call('sendMail', 'no address', 's', 'h', 't')).toMatchObject({ status: 400 });
  });

  it('renders templates: its own before the server’s, escaped', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'rookery-templates-'));
    try {
      writeFileSync(join(folder, 'hello.html'), '<p>{{ name }} at {{ server_name }}</p>');
      const [own, servers] = await probe.api!.readTemplates(['hello.html', 'sso_error.html'], folder);
      expect(own?.render({ name: '<Ann>' })).toBe('<p>&lt;Ann&gt; at rookery.test</p>');
      expect(servers?.render({})).toContain('<html');
      await expect(probe.api!.readTemplates(['nowhere.html'], folder)).rejects.toMatchObject({ status: 404 });
      await expect(probe.api!.readTemplates(['hello.html'], 'relative')).rejects.toThrow(RangeError);
      await expect(probe.api!.readTemplates(['hello.html'], '/no/such/folder')).rejects.toThrow('/no/such/folder');
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  it('checks and sets the actions of push rules', async () => {
    const ann = '@ann:rookery.test';
    const rule = [ann, 'global', 'underride', '.m.rule.message'] as const;
    await value('checkPushRuleActions', ['notify', { set_tweak: 'highlight' }]);
    expect(await server.call('checkPushRuleActions', ['explode'])).toMatchObject({ status: 400 });
    await value('setPushRuleAction', ...rule, ['notify', { set_tweak: 'sound', value: 'ping' }]);
    const { accessToken: token } = (await value('registerDevice', ann)) as { accessToken: string };
    const found = await server.request('GET', '/pushrules/global/underride/.m.rule.message', undefined, token);
    expect(found.body).toMatchObject({ actions: ['notify', { set_tweak: 'sound', value: 'ping' }] });
    expect(await server.call('setPushRuleAction', ann, 'global', 'underride', 'none', [])).toMatchObject({
      status: 404,
    });
    expect(await server.call('setPushRuleAction', ann, 'device', 'underride', 'none', [])).toMatchObject({
      status: 400,
    });
    expect(await server.call('setPushRuleAction', ann, 'global', 'none', 'none', [])).toMatchObject({ status: 400 });
  });

  it('a module sets the presence of users', async () => {
    const ann = '@ann:rookery.test';
    await value('setPresenceForUsers', [{ userId: ann, state: 'unavailable', statusMsg: 'at lunch' }]);
    const { accessToken: token } = (await value('registerDevice', ann)) as { accessToken: string };
    const path = `/presence/${encodeURIComponent(ann)}/status`;
    const shown = await server.request('GET', path, undefined, token);
    expect(shown.body).toMatchObject({ presence: 'unavailable', status_msg: 'at lunch' });
    expect(await server.call('setPresenceForUsers', [{ userId: ann, state: 'asleep' }])).toMatchObject({ status: 400 });
    expect(await server.call('setPresenceForUsers', [{ userId: '@x:else.where', state: 'online' }])).toMatchObject({
      status: 400,
    });
  });

  it('sends a notification to the gateways of a device', async () => {
    const asked: { devices: { pushkey: string }[] }[] = [];
    const gateway = createServer((request, response) => {
      let body = '';
      request.on('data', (chunk: Buffer) => (body += chunk.toString()));
      request.on('end', () => {
        asked.push((JSON.parse(body) as { notification: (typeof asked)[number] }).notification);
        response.end(JSON.stringify({ rejected: ['old'] }));
      });
    });
    await new Promise<void>((resolve) => gateway.listen(0, '127.0.0.1', resolve));
    const url = `http://127.0.0.1:${(gateway.address() as AddressInfo).port}/_matrix/push/v1/notify`;
    const carl = await server.registerUser('carl');
    for (const pushkey of ['new', 'old']) {
      const pusher = {
        ...{
          kind: 'http',
          app_id: `app ${pushkey}`,
          pushkey,
          app_display_name: 'a',
          device_display_name: 'd',
          lang: 'en',
        },
        data: { url, format: 'x' },
      };
      expect((await carl.request('POST', '/pushers/set', pusher)).status).toBe(200);
    }
    const args = [carl.userId, carl.deviceId, { event_id: '$1' }, { sound: 'ping' }, { aps: {} }];
    expect(await value('sendHttpPushNotification', ...args)).toEqual({ new: true, old: false });
    expect(asked.find(({ devices }) => devices[0]?.pushkey === 'new')).toEqual({
      event_id: '$1',
      devices: [
        {
          ...{ app_id: 'app new', pushkey: 'new', pushkey_ts: expect.any(Number) as number },
          data: { format: 'x', default_payload: { aps: {} } },
          tweaks: { sound: 'ping' },
        },
      ],
    });
    expect(await value('sendHttpPushNotification', carl.userId, 'OTHER', {})).toEqual({});
    gateway.closeAllConnections();
    gateway.close();
    expect(await value('sendHttpPushNotification', carl.userId, null, {})).toEqual({ new: false, old: false });
  });

  it('serves paths of its own, with parameters and a rest', async () => {
    const files = await fetch(`${server.baseUrl}/_synapse/client/probe/files/a/b.txt`);
    expect([files.status, await files.text()]).toEqual([200, 'a/b.txt']);
    const missing = await server.request('GET', '/_synapse/client/probe/sso/a/b/c');
    expect(missing).toMatchObject({ status: 404, body: { errcode: 'M_UNRECOGNIZED' } });
    const beyond = await server.request('GET', '/_synapse/client/prob');
    expect(beyond.status).toBe(404);
    const large = await fetch(`${server.baseUrl}/_synapse/client/probe/call`, {
      method: 'POST',
      body: 'x'.repeat(2e7),
    });
    expect(large.status).toBe(413);
  });

  it('sends presence to users who share no room', async () => {
    const dora = await server.registerUser('dora');
    const { body } = await dora.request<{ next_batch: string }>('GET', '/sync');
    await value('setPresenceForUsers', [{ userId: '@ann:rookery.test', state: 'online', statusMsg: 'here' }]);
    await value('sendLocalOnlinePresenceTo', [dora.userId]);
    // Presence comes a little later than what is stored.
    await eventually(async () => {
      const next = await dora.request<{ presence?: { events: { sender: string }[] } }>(
        'GET',
        `/sync?since=${body.next_batch}`,
      );
      return next.body.presence?.events.some(({ sender }) => sender === '@ann:rookery.test');
    });
    expect(await server.call('sendLocalOnlinePresenceTo', ['nobody'])).toMatchObject({ status: 400 });
  });

  it('sends no requests to servers that its entry does not name', async () => {
    const called = await server.call('federation.getJson', 'else.where', '/_matrix/federation/v1/version');
    expect(called).toMatchObject({ status: 403, error: 'M_FORBIDDEN' });
  });
});
