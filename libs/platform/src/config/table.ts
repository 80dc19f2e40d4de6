import type { Setting } from './setting.js';
import { accountSettings } from './settings/accounts.js';
import { authSettings, refusedAuthSettings } from './settings/auth.js';
import { emailSettings } from './settings/email.js';
import { experimentalSettings } from './settings/experimental.js';
import { federationSettings } from './settings/federation.js';
import { limitSettings } from './settings/limits.js';
import { mediaSettings } from './settings/media.js';
import { roomSettings } from './settings/rooms.js';
import { serverSettings } from './settings/server.js';
import { serviceSettings } from './settings/services.js';
import { storageSettings } from './settings/storage.js';
import { workerSettings } from './settings/workers.js';

/** The settings by chapter of the documentation. */
export const chapters = {
  Server: serverSettings,
  Federation: federationSettings,
  'Database, caches and logs': storageSettings,
  'Registration and accounts': accountSettings,
  'Single sign-on and other ways in': authSettings,
  Rooms: roomSettings,
  Media: mediaSettings,
  Mail: emailSettings,
  'Limits and retention': limitSettings,
  'Application services, keys and observation': serviceSettings,
  Workers: workerSettings,
  'Experimental features': { ...experimentalSettings, ...refusedAuthSettings },
};

/** Every setting there is, by its name with dots. */
export const settings = {
  ...serverSettings,
  ...federationSettings,
  ...storageSettings,
  ...accountSettings,
  ...authSettings,
  ...roomSettings,
  ...mediaSettings,
  ...emailSettings,
  ...limitSettings,
  ...serviceSettings,
  ...workerSettings,
  ...experimentalSettings,
  ...refusedAuthSettings,
};

/** The name of a setting, with dots between section and key: `email.smtp_host`. */
export type SettingName = keyof typeof settings;

/** What a setting reads into: durations are milliseconds, sizes bytes, paths absolute. */
export type SettingValue<K extends SettingName> = (typeof settings)[K] extends Setting<infer T> ? T : never;

/** The names, in the order of the table. */
export const settingNames = Object.keys(settings) as SettingName[];

/** One row of the table. */
export const rowOf = (name: SettingName): Setting => settings[name] as Setting;

/** Whether there is a setting of that name. */
export const isSettingName = (name: string): name is SettingName => Object.hasOwn(settings, name);
