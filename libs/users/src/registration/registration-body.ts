import { type Infer, json } from '@rookery/http';
import type { JsonObject } from '@rookery/matrix-types';
import { authField } from '../uia/auth-field.js';

const text = json.nullable(json.string());
const flag = json.nullable(json.boolean());

/** The body of a registration, but for what proves who registers. */
export const registrationSchema = json.object({
  auth: authField,
  type: json.optional('`m.login.application_service` from an application service.', json.string()),
  username: json.optional('The localpart of the new user id; it is drawn unless given.', text),
  password: json.optional('The password.', text),
  device_id: json.optional(
    'The id of the device; it is drawn unless given.',
    json.nullable(json.string({ maxLength: 255 })),
  ),
  initial_device_display_name: json.optional('What the device is called.', text),
  inhibit_login: json.optional('Whether no device is signed in.', flag),
  refresh_token: json.optional('Whether the client can refresh access tokens that end.', flag),
  guest_access_token: json.optional('The access token of a guest who becomes this user.', text),
});

/** What a client sends to register. */
export type RegistrationBody = Infer<typeof registrationSchema> & JsonObject;
