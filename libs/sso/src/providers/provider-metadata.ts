import { type Clock, ServiceMetadata } from '@rookery/platform';
import { SsoError } from '../common/sso-error.js';

/** Metadata are fetched again when they are older, milliseconds. */
const keptMs = 3_600_000;

/** What a provider says of itself; where nothing could be had so far, `get` throws an SsoError `provider_unavailable`. */
export const providerMetadata = <T>(clock: Clock, fetch: () => Promise<T>): ServiceMetadata<T> =>
  new ServiceMetadata(clock, keptMs, async () => {
    try {
      return await fetch();
    } catch (error) {
      throw SsoError.unavailable(error);
    }
  });
