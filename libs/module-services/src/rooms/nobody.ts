import type { Config } from '@rookery/platform';

/** Who is named where an administrator would be: no user can have this name. */
export const nobodyOf = (config: Config): string => `@:${config.serverName}`;
