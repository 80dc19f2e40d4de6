import type { OidcProviderSetting } from '@rookery/platform';
import { FakeClock } from '@rookery/testing';
import type { ProviderHttp } from '../providers/provider-http.js';
import { OidcClient } from './oidc-client.js';

describe('OidcClient', () => {
  it('leaves a provider alone for a while that does not tell its metadata', async () => {
    let asked = 0;
    const http = { request: () => Promise.reject(new Error(`away ${++asked}`)) } as unknown as ProviderHttp;
    const setting = { issuer: 'https://id.test', discover: true, scopes: ['openid'] } as unknown as OidcProviderSetting;
    const clock = new FakeClock();
    const client = new OidcClient(setting, http, clock, undefined);
    for (let n = 0; n < 3; n++) await expect(client.metadata()).rejects.toMatchObject({ code: 'provider_unavailable' });
    expect(asked).toBe(1);
    await clock.advance(5_000);
    await expect(client.metadata()).rejects.toMatchObject({ code: 'provider_unavailable' });
    expect(asked).toBe(2);
  });
});
