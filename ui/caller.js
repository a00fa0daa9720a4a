// The caller as the node authenticates it: its user, its rights and its tenants.

import * as api from './api.js';
import * as settings from './settings.js';

/** Null until the node has responded, and if the request fails: then all views are offered, and the node decides. */
let caller = null;

export async function load() {
  caller = await api.get('/auth/caller').catch(() => null);
}

/** Returns whether the roles of the caller grant a right. */
export const can = (right) => !caller || caller.rights.includes(right);

/** Returns whether the caller has access to all tenants, and therefore to the node. */
export const seesNode = () => !caller || caller.tenants === null;

export const roles = () => caller?.roles ?? [];

/** Returns the authenticated user; without authentication, the user name in the settings. */
export const user = () => caller?.user ?? settings.user.get();

/** Returns whether the user logged in, and can log out. */
export const hasSession = () => Boolean(caller?.session);

/** Returns whether the node authenticates the user. */
export const isAuthenticated = () => Boolean(caller?.user);
