import type { Config } from '@rookery/platform';

/**
 * Whether this process serves media. Of several each does: who had a worker for it said so in that worker's file alone, and what
 * such a worker is sent goes on to the process that writes.
 */
export const servesMedia = (config: Config): boolean => config.get('enable_media_repo') || config.get('redis.enabled');
