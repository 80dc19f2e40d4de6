import { eventually, freePort } from '@rookery/testing';

import { Browser } from './browser.js';
import { startRealProvider } from './real-provider.js';
import { startWorld, trusted } from './world.js';

it('a real provider ends the sessions of one of its own', async () => {
  const port = await freePort();
  const address = `http://127.0.0.1:${port}`;
  const provider = await startRealProvider(`${address}/_synapse/client/oidc/callback`, {
    backchannel_logout_uri: `${address}/_synapse/client/oidc/backchannel_logout`,
    backchannel_logout_session_required: true,
  });
  const world = await startWorld('sqlite', {
    public_baseurl: `${address}/`,
    listeners: [{ port, bind_addresses: ['127.0.0.1'], type: 'http', resources: [{ names: ['client'] }] }],
    oidc_providers: [
      {
        idp_id: 'real',
        idp_name: 'Real',
        issuer: provider.issuer,
        client_id: 'rookery',
        client_secret: 'a secret of the provider',
        backchannel_logout_enabled: true,
        user_mapping_provider: { config: { localpart_template: '{{ user.sub }}' } },
      },
    ],
  });
  try {
    const logIn = async (browser: Browser, login: string) => {
      const start = await browser.follow(
        `${address}/_matrix/client/v3/login/sso/redirect?${new URLSearchParams({ redirectUrl: trusted }).toString()}`,
      );
      const asked = await browser.submit(start, { login, password: 'any' });
      return world.logIn(asked.html.includes('<form') ? await browser.submit(asked) : asked);
    };
    const [first, second] = [new Browser(), new Browser()];
    const ended = await logIn(first, 'anna');
    const stays = await logIn(second, 'anna');
    const other = await logIn(new Browser(), 'bert');
    const page = await first.follow(`${provider.issuer}/session/end`);
    await first.submit(page, { logout: 'yes' });
    const lives = async (user: typeof ended): Promise<boolean> =>
      (await user.request('GET', '/account/whoami')).status === 200;
    await eventually(async () => ((await lives(ended)) ? undefined : true));
    expect([await lives(stays), await lives(other)]).toEqual([true, true]);
  } finally {
    await world.stop();
    await provider.stop();
  }
});
