import { MatrixError } from '@rookery/matrix-types';
import type { Config } from '@rookery/platform';

/**
 * The secret that a client makes up for a proof.
 * @throws MatrixError 400 `M_INVALID_PARAM`
 */
export function checkClientSecret(secret: string): string {
  if (!/^[0-9A-Za-z.=_-]{1,255}$/.test(secret)) throw MatrixError.invalidParam('Not a valid client secret');
  return secret;
}

/**
 * Where a browser goes after its link was followed. A local file or a script must not be opened from our page, and the
 * operator may name the domains that are trusted.
 * @throws MatrixError 400 `M_INVALID_PARAM`
 */
export function checkNextLink(config: Config, link: string | undefined): string | undefined {
  if (link === undefined || link === '') return undefined;
  const url = link.length > 2000 ? undefined : URL.parse(link);
  if (!url || (url.protocol !== 'https:' && url.protocol !== 'http:') || url.username !== '' || url.password !== '')
    throw MatrixError.invalidParam("'next_link' is not allowed");
  const domains = config.get('next_link_domain_whitelist');
  if (domains !== undefined && !domains.includes(url.hostname))
    throw MatrixError.invalidParam("'next_link' leads to a domain that is not allowed");
  return url.href;
}
