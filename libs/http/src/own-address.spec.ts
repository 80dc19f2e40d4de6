import { Config } from '@rookery/platform';
import { ownBaseUrl, ownPath, ownUrl } from './own-address.js';

describe('addresses that the server hands out', () => {
  it('lie below the public address, or below what its name leads to', () => {
    expect(ownBaseUrl(Config.fromObject({ server_name: 'x.org' }))).toBe('https://x.org/');
    const config = Config.fromObject({ public_baseurl: 'https://x.org/chat' });
    expect(ownUrl(config, '_matrix/consent', { u: 'a b' })).toBe('https://x.org/chat/_matrix/consent?u=a+b');
    expect(ownPath(config, '_synapse/client/oidc')).toBe('/chat/_synapse/client/oidc');
  });

  it('have the prefixes of the settings', () => {
    const config = Config.fromObject({ server_name: 'x.org', protocol_prefix: '_proto', service_prefix: '_svc' });
    expect(ownUrl(config, '_matrix/consent')).toBe('https://x.org/_proto/consent');
    expect(ownUrl(config, '_synapse/client/unsubscribe')).toBe('https://x.org/_svc/client/unsubscribe');
    expect(ownPath(config, '_matrix/client')).toBe('/_proto/client');
    expect(ownUrl(config, 'other/_matrix/x')).toBe('https://x.org/other/_matrix/x');
  });
});
